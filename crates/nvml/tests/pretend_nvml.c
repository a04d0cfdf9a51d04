/* A library that imitates NVML, on a machine with two GPUs. The structures are those of
 * NVIDIA's nvml.h. PRETEND selects what fails. */

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef unsigned nvmlEnableState_t;
typedef struct gpu *nvmlDevice_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci;

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, FORBIDDEN = 4, NOT_FOUND = 6, SHORT = 7, NOT_LOADED = 9 };

struct gpu { unsigned index; const char *bus_id; };
static struct gpu gpus[2] = {{0, "00000000:01:00.0"}, {1, "00000000:C1:00.0"}};

static int pretend(const char *what)
{
    const char *set = getenv("PRETEND");
    return set && strcmp(set, what) == 0;
}

static nvmlReturn_t put(char *out, unsigned length, const char *text)
{
    if (strlen(text) >= length) return SHORT;
    strcpy(out, text);
    return OK;
}

nvmlReturn_t nvmlInit_v2(void) { return pretend("no driver") ? NOT_LOADED : OK; }
nvmlReturn_t nvmlShutdown(void) { return OK; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) { return put(out, length, "123.45.06"); }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (index > 1) return INVALID;
    *device = &gpus[index];
    return OK;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    for (int i = 0; i < 2; i++)
        if (strcasecmp(id, gpus[i].bus_id) == 0) {
            *device = &gpus[i];
            return OK;
        }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, pci *out)
{
    memset(out, 0, sizeof *out);
    strcpy(out->bus_id, device->bus_id);
    return OK;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out) { *out = device->index; return OK; }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned length)
{
    (void)device;
    return put(out, length, "Pretended GPU");
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned length)
{
    return put(out, length, device->index ? "GPU-1" : "GPU-0");
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, memory_v2 *out)
{
    (void)device;
    if (out->version != (sizeof *out | 2u << 24)) return INVALID;
    out->total = 1000;
    out->reserved = 100;
    out->free = 300;
    out->used = 600;
    return OK;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now, nvmlEnableState_t *later)
{
    if (device->index) return UNSUPPORTED;
    *now = 1;
    *later = 0;
    return OK;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *later)
{
    if (device->index) return UNSUPPORTED;
    *now = *later = pretend("instances");
    return OK;
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *out) { *out = device->index ? 3 : 0; return OK; }
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *out)
{
    (void)device;
    *out = 1;
    return OK;
}
/* nvmlDeviceGetDisplayActive is missing: an older library lacks functions. */

static nvmlReturn_t list(unsigned *count, process *out, const process *all, unsigned number)
{
    if (pretend("no lists")) return FORBIDDEN;
    unsigned room = *count;
    *count = number;
    if (room < number) return SHORT;
    if (number) memcpy(out, all, number * sizeof *all);
    return OK;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, process *out)
{
    process all[] = {
        {(unsigned)getpid(), 250, ~0u, ~0u},
        {0, 50, ~0u, ~0u},
        {4194305, 200, ~0u, ~0u}, /* beyond the largest pid of Linux */
    };
    if (device->index) all[2].used = ~0ull;
    return list(count, out, all, 3);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, process *out)
{
    (void)device;
    process all[] = {{(unsigned)getpid(), 250, ~0u, ~0u}};
    return list(count, out, all, 1);
}
/* nvmlDeviceGetMPSComputeRunningProcesses_v3 is missing too. */
