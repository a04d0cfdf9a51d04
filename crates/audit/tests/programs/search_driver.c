/* Only a library of the driver holds the address: in a variable, a thread-local variable, its heap, or on the stack of
   its thread. Prints where it is found. */
#include "search.h"
#include "heap_driver.h"

int main(int count, char **arguments)
{
    const char *shape = count > 1 ? arguments[1] : "";
    uint64_t masked = 0x123456789000ull ^ MASK;
    pthread_t thread = 0;
    if (strcmp(shape, "variable") == 0)
        put(driver_variable(), masked);
    else if (strcmp(shape, "thread-local") == 0)
        put(driver_thread_local(), masked);
    else if (strcmp(shape, "heap") == 0)
        put(driver_malloc(64), masked);
    else if (strcmp(shape, "thread") == 0)
        thread = driver_thread(masked);
    else
        return 5;
    search(masked);
    if (thread)
        driver_thread_end(thread);
    return 0;
}
