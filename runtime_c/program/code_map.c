/* Machine code in memory: targets of this CPU, read+execute mappings, the perf map. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "program/code.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/status.h"

/* The targets of jit/llvm/target.py and the CPU features that their code requires. */
static int32_t rank_x86_v3(void) { return cpu_features() & CPU_V3 ? 3 : 0; }

static int32_t rank_x86_v3_vnni(void) { return cpu_features() & CPU_AVX_VNNI ? 4 : 0; }

static int32_t rank_x86_v4(void) { return cpu_features() & CPU_V4 ? 5 : 0; }

static int32_t rank_x86_vnni(void) { return cpu_features() & CPU_VNNI ? 6 : 0; }

static int32_t rank_x86_bf16(void) { return cpu_features() & CPU_BF16 ? 7 : 0; }

/* AMX tiles, if Linux lets this process use them: asking twice is fine. */
static int32_t rank_x86_amx(void) {
#if defined(__x86_64__) && defined(__linux__)
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
  if (!(cpu_features() & CPU_AMX)) return 0;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 ? 8 : 0;
#else
  return 0;
#endif
}

static int32_t rank_aarch64(void) {
#if defined(__aarch64__)
  return 1;
#else
  return 0;
#endif
}

static int32_t rank_dotprod(void) { return cpu_features() & CPU_DOTPROD ? 2 : 0; }

static int32_t rank_i8mm(void) { return cpu_features() & CPU_I8MM ? 3 : 0; }

static const struct target {
  const char *name;
  int32_t (*rank)(void);
} TARGETS[] = {
    {"x86-64-v4-amx", rank_x86_amx}, {"x86-64-v4-bf16", rank_x86_bf16},    {"x86-64-v4-vnni", rank_x86_vnni},
    {"x86-64-v4", rank_x86_v4},      {"x86-64-v3-vnni", rank_x86_v3_vnni}, {"x86-64-v3", rank_x86_v3},
    {"aarch64-i8mm", rank_i8mm},     {"aarch64-dotprod", rank_dotprod},    {"aarch64", rank_aarch64}};

enum { N_TARGETS = sizeof TARGETS / sizeof *TARGETS };

/* SVM_CPU, for tests of older CPUs, names the best target that this CPU is taken to run. */
static int32_t rank_of(int target) {
  const char *best = getenv("SVM_CPU");
  int first = 0;
  while (best && *best && first < N_TARGETS && strcmp(TARGETS[first].name, best)) first++;
  return target < first ? 0 : TARGETS[target].rank();
}

int32_t code_target_rank(const char *name) {
  for (int i = 0; i < N_TARGETS; i++) {
    if (!strcmp(TARGETS[i].name, name)) return rank_of(i);
  }
  return 0;
}

const char *svm_host_target(void) {
  for (int i = 0; i < N_TARGETS; i++) {
    if (rank_of(i)) return TARGETS[i].name; /* best first */
  }
  return "";
}

/* One line per named piece: address, size, name, as Linux perf reads it. */
static void write_perf_rows(const code_piece *pieces, int32_t n, void *const *starts) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  FILE *file = fopen(path, "a");
  if (!file) return; /* a profiler's aid only */
  for (int32_t i = 0; i < n; i++) {
    if (!pieces[i].name) continue;
    fprintf(file, "%" PRIxPTR " %zx %s\n", (uintptr_t)starts[i], pieces[i].size, pieces[i].name);
  }
  fclose(file);
}

static size_t aligned(size_t size, size_t alignment) { return (size + alignment - 1) & ~(alignment - 1); }

/* The bytes that the pieces take one after another. */
static size_t bytes_of(const code_piece *pieces, int32_t n) {
  size_t end = 0;
  for (int32_t i = 0; i < n; i++) end = aligned(end, pieces[i].alignment) + pieces[i].size;
  return end;
}

int32_t code_map_make(const code_piece *pieces, int32_t n, int write_perf_map, code_map *out, void **starts,
                      svm_error *error) {
  size_t size = aligned(bytes_of(pieces, n), SVM_FILE_PAGE); /* counted towards code_bytes_max */
  *out = (code_map){0};
  if (!size) return SVM_OK;
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return status_fail(error, SVM_ERROR_MEMORY, "memory: mapping %zu bytes of machine code failed: %s", size,
                       strerror(errno));
  }
  size_t at = 0;
  for (int32_t i = 0; i < n; i++) {
    at = aligned(at, pieces[i].alignment);
    starts[i] = memory + at;
    memcpy(starts[i], pieces[i].code, pieces[i].size);
    at += pieces[i].size;
  }
  if (mprotect(memory, size, PROT_READ | PROT_EXEC)) {
    int reason = errno;
    munmap(memory, size);
    return status_fail(error, SVM_ERROR_FILE, "this system does not let a process make memory executable: %s",
                       strerror(reason));
  }
  __builtin___clear_cache(memory, memory + size);
  if (write_perf_map) write_perf_rows(pieces, n, starts);
  *out = (code_map){memory, size};
  return SVM_OK;
}

void code_map_free(code_map *map) {
  if (map->memory) munmap(map->memory, map->size);
  *map = (code_map){0};
}
