/* How many CPUs this process may keep busy. */
#pragma once

#include <stdint.h>

enum { CPUS_MILLI = 1000 };

/* Thousandths of CPUs that control groups grant, the least of a group and those above it; 0: no limit.
 * `mounts` is where they are mounted (/sys/fs/cgroup), `membership` the file that names the groups
 * (/proc/self/cgroup). */
int64_t cpus_granted(const char *mounts, const char *membership);

/* The CPUs that the process may run on, and whole ones of its control groups' quota; at least 1. More threads
 * than the quota would all stand still once it is used up. */
int32_t cpus_available(void);
