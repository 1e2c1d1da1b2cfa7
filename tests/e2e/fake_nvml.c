/* A library that answers what jitney asks NVIDIA's NVML: two GPUs, of which the second has no power sensor. FAKE_NVML_PROCESSES is a
   file of the processes on the first GPU, each as PID BYTES. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

static long numbers[2] = {0, 1};
#define INDEX(device) ((int)*(long *)(device))

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "fake"; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return INVALID_ARGUMENT;
    *device = &numbers[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-fake-%d", INDEX(device));
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    rates->gpu = 75 - 25 * (unsigned)INDEX(device);
    rates->memory = 10;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
    (void)device;
    memory->total = 1000; memory->used = 400; memory->free = 600; memory->reserved = 0;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    if (INDEX(device) == 1) return NOT_SUPPORTED;
    *milliwatts = 250500;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    (void)device;
    *millijoules = 2500;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) {
    (void)device; (void)sensor;
    *degrees = 61;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
    const char *path = getenv("FAKE_NVML_PROCESSES");
    FILE *file = INDEX(device) == 0 && path ? fopen(path, "r") : NULL;
    Process found[16];
    unsigned number = 0;
    memset(found, 0, sizeof found);
    while (file && number < 16 && fscanf(file, "%u %llu", &found[number].pid, &found[number].used) == 2) number++;
    if (file) fclose(file);
    unsigned room = *count;
    *count = number;
    if (room < number || !processes) return number ? INSUFFICIENT_SIZE : SUCCESS;
    memcpy(processes, found, number * sizeof *found);
    return SUCCESS;
}
