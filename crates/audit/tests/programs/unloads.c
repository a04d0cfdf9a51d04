/* Calls `enter` of each library that it is given, and unloads it before the next one; not one whose argument begins with `=`.
 * Between load and call, `!` removes the file, `^` changes the folder, and `FILE<OTHER` replaces the file by another one.
 * `+OTHER,FILE` renames a file and loads nothing.
 * `-` maps a page where the last one was, so that the next one is loaded elsewhere. At the end, the
 * file that `REPLACE_BY` names takes the place of the one that `REPLACE` names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cuInit(unsigned);
int cuCtxCreate_v2(void **, unsigned, int);

int main(int count, char **arguments) {
    void *context, *last = NULL;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 90;
    for (int at = 1; at < count; at++) {
        char *path = arguments[at];
        if (strcmp(path, "-") == 0) {
            void *page = (void *)((uintptr_t)last & ~(uintptr_t)4095);
            if (mmap(page, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) return 91;
            continue;
        }
        if (path[0] == '+') {
            char *comma = strchr(path, ',');
            *comma = 0;
            if (rename(path + 1, comma + 1)) return 96;
            continue;
        }
        int stays = path[0] == '=', removes = path[0] == '!', leaves = path[0] == '^';
        path += stays || removes || leaves;
        char *other = strchr(path, '<');
        if (other) *other++ = 0;
        void *library = dlopen(path, RTLD_NOW);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 92;
        void (*enter)(void) = (void (*)(void))dlsym(library, "enter");
        if (!enter) return 93;
        if ((removes && unlink(path)) || (leaves && chdir("/")) || (other && rename(other, path))) return 97;
        enter();
        last = (void *)enter;
        if (!stays && dlclose(library)) return 94;
    }
    char *from = getenv("REPLACE_BY"), *to = getenv("REPLACE");
    return from && rename(from, to) ? 95 : 0;
}
