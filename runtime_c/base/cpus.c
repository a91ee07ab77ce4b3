#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif

#include "base/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svm.h"

enum { MAX_PATH = 4096, MAX_LINE = MAX_PATH + 256 };

/* Read up to `most` numbers from a file of a group; returns how many. */
static int read_numbers(const char *folder, const char *name, int64_t *out, int most) {
  char path[MAX_PATH + 64], text[64];
  int length = snprintf(path, sizeof path, "%s/%s", folder, name), n = 0;
  FILE *f = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
  if (!f) return 0;
  char *at = fgets(text, sizeof text, f);
  fclose(f);
  for (char *end; at && n < most; n++, at = end) {
    out[n] = strtoll(at, &end, 10);
    if (end == at) break;
  }
  return n;
}

/* What one group grants: cpu.max of version 2 ("max 100000": none), two files of version 1 (-1: none). */
static int64_t granted_by(const char *folder) {
  int64_t n[2] = {0, 0};
  if (read_numbers(folder, "cpu.max", n, 2) != 2) {
    if (read_numbers(folder, "cpu.cfs_quota_us", n, 1) != 1) return 0;
    if (read_numbers(folder, "cpu.cfs_period_us", n + 1, 1) != 1) return 0;
  }
  if (n[0] <= 0 || n[1] <= 0 || n[0] > INT64_MAX / CPUS_MILLI) return 0;
  int64_t granted = n[0] * CPUS_MILLI / n[1];
  return granted > 0 ? granted : 1;
}

static int64_t least(int64_t a, int64_t b) { return !a ? b : !b || a < b ? a : b; }

/* The least of the groups from mount/path up to the mount. A container may see the path of its host, of which
 * it has the last part alone: groups that are not there are left out. */
static int64_t granted_above(const char *mount, const char *path) {
  char folder[MAX_PATH];
  size_t top = strlen(mount);
  int length = snprintf(folder, sizeof folder, "%s%s", mount, path);
  if (length < 0 || (size_t)length >= sizeof folder) return 0;
  int64_t found = 0;
  for (;;) {
    found = least(found, granted_by(folder));
    char *cut = strrchr(folder + top, '/');
    if (!cut) return found;
    *cut = 0;
  }
}

static int has_cpu(char *controllers) {
  for (char *rest, *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
    if (!strcmp(name, "cpu")) return 1;
  }
  return 0;
}

/* A line is "number:controllers:path"; without controllers it is version 2's. */
static int64_t granted_in(const char *mounts, char *line) {
  line[strcspn(line, "\n")] = 0;
  char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!path) return 0;
  *path++ = 0;
  char mount[MAX_PATH];
  const char *name = controllers[1] ? "/cpu" : "";
  if (controllers[1] && !has_cpu(controllers + 1)) return 0;
  int length = snprintf(mount, sizeof mount, "%s%s", mounts, name);
  return length > 0 && (size_t)length < sizeof mount ? granted_above(mount, path) : 0;
}

int64_t cpus_granted(const char *mounts, const char *membership) {
  FILE *f = fopen(membership, "re");
  if (!f) return 0;
  char line[MAX_LINE];
  int64_t found = 0;
  while (fgets(line, sizeof line, f)) found = least(found, granted_in(mounts, line));
  fclose(f);
  return found;
}

int64_t svm_cpu_quota(void) { return cpus_granted("/sys/fs/cgroup", "/proc/self/cgroup"); }

int32_t cpus_available(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
  int64_t granted = svm_cpu_quota();
  if (granted && granted / CPUS_MILLI < n) n = granted / CPUS_MILLI;
  return n < 1 ? 1 : (int32_t)n;
}
