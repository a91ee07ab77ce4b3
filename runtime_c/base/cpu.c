/* The features of the CPU. */
#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)

enum { KNOWN = 1 << 30 };

/* Registers that the operating system saves (XCR0). */
static uint32_t saved_state(void) {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }

/* The bits of leaf 7, page 1 (eax), which a CPU has whose page 0 says so. */
static uint32_t second_page(uint32_t last_page) {
  uint32_t a, b, c, d;
  return last_page && __get_cpuid_count(7, 1, &a, &b, &c, &d) ? a : 0;
}

/* Bits of CPUID's leaves 1 (ecx), 7 (ebx, ecx, edx) and 0x80000001 (ecx), and of XCR0. */
static uint32_t look(void) {
  enum { FMA = 1 << 12, SSE41 = 1 << 19, MOVBE = 1 << 22, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };
  enum { BMI = 1 << 3, AVX2 = 1 << 5, BMI2 = 1 << 8, SHA = 1 << 29, VNNI = 1 << 11, LZCNT = 1 << 5 };
  enum { AVX_VNNI = 1 << 4, AVX512_BF16 = 1 << 5 };
  enum { BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25, YMM = 0x6, ZMM = 0xe6 };
  const uint32_t avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F, DQ, CD, BW, VL */
  uint32_t a, b, c1, c7, ext, d, found = 0;
  if (!__get_cpuid(1, &a, &b, &c1, &d)) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c7, &d)) return 0;
  if (has(b, SHA) && has(c1, SSE41)) found |= CPU_SHA;
  uint32_t a7 = second_page(a), b7 = b, d7 = d, state = has(c1, OSXSAVE) ? saved_state() : 0;
  if (!__get_cpuid(0x80000001, &a, &b, &ext, &d)) return found;
  if (has(state, YMM) && has(c1, FMA | MOVBE | AVX | F16C) && has(b7, BMI | AVX2 | BMI2) && has(ext, LZCNT))
    found |= CPU_V3;
  if (has(found, CPU_V3) && has(state, ZMM) && has(b7, avx512)) found |= CPU_V4;
  if (has(found, CPU_V4) && has(c7, VNNI)) found |= CPU_VNNI;
  if (has(found, CPU_VNNI) && has(a7, AVX512_BF16)) found |= CPU_BF16;
  if (has(found, CPU_BF16) && has(d7, BF16 | TILE | INT8)) found |= CPU_AMX;
  if (has(found, CPU_V3) && has(a7, AVX_VNNI)) found |= CPU_AVX_VNNI;
  return found;
}

uint32_t cpu_features(void) {
  static _Atomic uint32_t features; /* CPUID traps in a virtual machine: asked once */
  uint32_t known = atomic_load_explicit(&features, memory_order_relaxed);
  if (!known) atomic_store_explicit(&features, known = look() | KNOWN, memory_order_relaxed);
  return known & ~(uint32_t)KNOWN;
}
#elif defined(__aarch64__) && defined(__linux__)
/* Bits of Linux's auxiliary vector: ASIMDDP of HWCAP, I8MM of HWCAP2. */
uint32_t cpu_features(void) {
  enum { ASIMDDP = 1 << 20, I8MM = 1 << 13 };
  if (!(getauxval(AT_HWCAP) & ASIMDDP)) return 0;
  return CPU_DOTPROD | (getauxval(AT_HWCAP2) & I8MM ? CPU_I8MM : 0);
}
#else
uint32_t cpu_features(void) { return 0; }
#endif
