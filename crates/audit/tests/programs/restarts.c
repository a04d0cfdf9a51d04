/* A thread waits in a system call while the process is searched several times. Prints what the call returned when it was woken, or had
   waited long enough: `0`, or the number of the error. The argument is the call. */
#define _GNU_SOURCE
#include "search.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *call;
static int pipes[2], sockets[2];
static sem_t posted;
static volatile sig_atomic_t handled;
static volatile int begun;
static int is_signalled;

static void handle(int signal) { handled = signal; }

static int is(const char *name) { return strcmp(call, name) == 0; }

/* What is left to sleep is 0, or the error. */
static int wait_in_it(void)
{
    struct timespec time = {is_signalled ? 1000 : 1, 500000000}, far;
    struct timeval limit = {30, 0};
    struct pollfd wanted = {pipes[0], POLLIN, 0};
    struct epoll_event event = {EPOLLIN, {0}};
    fd_set set;
    sigset_t none;
    char byte;
    int epoll;
    sigemptyset(&none);
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    clock_gettime(CLOCK_REALTIME, &far);
    far.tv_sec += 30;
    begun = 1;
    if (is("sleep"))
        return sleep(2);
    if (is("nanosleep"))
        return nanosleep(&time, &time) == 0 ? 0 : errno;
    if (is("usleep"))
        return usleep(1500000) == 0 ? 0 : errno;
    if (is("clock_nanosleep"))
        return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
    if (is("poll"))
        return poll(&wanted, 1, 30000) == 1 ? 0 : errno;
    if (is("ppoll"))
        return ppoll(&wanted, 1, NULL, NULL) == 1 ? 0 : errno;
    if (is("select"))
        return select(pipes[0] + 1, &set, NULL, NULL, &limit) == 1 ? 0 : errno;
    if (is("sem_timedwait"))
        return sem_timedwait(&posted, &far) == 0 ? 0 : errno;
    if (is("recv"))
        return recv(sockets[0], &byte, 1, 0) == 1 ? 0 : errno;
    if (is("sigsuspend") || is("pause")) {
        errno = 0;
        is("pause") ? pause() : sigsuspend(&none);
        return handled == SIGUSR1 ? 0 : errno;
    }
    epoll = epoll_create1(0);
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) != 0)
        exit(5);
    if (is("epoll_wait"))
        return epoll_wait(epoll, &event, 1, 30000) == 1 ? 0 : errno;
    exit(6);
}

static void *waiter(void *result)
{
    *(int *)result = wait_in_it();
    return NULL;
}

int main(int count, char **arguments)
{
    struct sigaction action = {.sa_handler = handle};
    struct timeval limit = {30, 0};
    pthread_t thread;
    int result = -1, at;
    uint64_t masked;
    call = count > 1 ? arguments[1] : "";
    is_signalled = count > 2 && strcmp(arguments[2], "signal") == 0;
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || sem_init(&posted, 0, 0) ||
        setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) || sigaction(SIGUSR1, &action, NULL))
        return 3;
    start_driver();
    masked = allocate();
    if (pthread_create(&thread, NULL, waiter, &result) != 0)
        return 4;
    while (!begun)
        usleep(1000);
    for (at = 0; at < 5; at++) {
        usleep(50000);
        search(masked);
    }
    if (is_signalled)
        pthread_kill(thread, SIGUSR1);
    else if (is("pause") || is("sigsuspend"))
        pthread_kill(thread, SIGUSR1);
    else if (write(pipes[1], "", 1) != 1 || write(sockets[1], "", 1) != 1 || sem_post(&posted) != 0)
        return 5;
    pthread_join(thread, NULL);
    printf("%d\n", result);
    return 0;
}
