#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

void *driver_malloc(size_t);
void *driver_calloc(size_t, size_t);
void *driver_realloc(void *, size_t);
void *driver_reallocarray(void *, size_t, size_t);
void *driver_memalign(size_t, size_t);
void *driver_aligned_alloc(size_t, size_t);
void *driver_valloc(size_t);
void *driver_pvalloc(size_t);
int driver_posix_memalign(void **, size_t, size_t);
size_t driver_usable(void *);
void driver_free(void *);
char *driver_strdup(const char *);
volatile uint64_t *driver_variable(void);
volatile uint64_t *driver_thread_local(void);
pthread_t driver_thread(uint64_t);
void driver_thread_end(pthread_t);
