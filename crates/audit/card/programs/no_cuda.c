// A program that is linked with the driver and never calls it: no report.
#include "driver.h"

void *volatile linked = (void *)cuInit;

int main(void) {
    expected("\"reports\": 0");
    return linked == NULL;
}
