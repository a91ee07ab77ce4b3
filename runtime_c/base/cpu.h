/* What this CPU has, and the operating system lets programs use. */
#pragma once

#include <stdint.h>

enum {
  CPU_SHA = 1,       /* SHA, SSE4.1 */
  CPU_V3 = 2,        /* AVX2, FMA, BMI, BMI2, F16C, LZCNT, MOVBE: x86-64-v3 */
  CPU_V4 = 4,        /* AVX-512 F, BW, CD, DQ, VL besides: x86-64-v4 */
  CPU_VNNI = 8,      /* AVX-512 VNNI besides */
  CPU_AMX = 16,      /* AMX tiles, their products of bf16 and int8, besides; requested from Linux */
  CPU_AVX_VNNI = 32, /* AVX-VNNI besides x86-64-v3 */
  CPU_DOTPROD = 64,  /* AArch64: sdot */
  CPU_I8MM = 128,    /* AArch64: usdot besides */
  CPU_BF16 = 256     /* AVX-512 products of bf16 besides VNNI's */
};

/* The features as bits, 0 for other machines than x86-64 and AArch64. They are read by CPUID and XGETBV
 * rather than __builtin_cpu_supports, whose table belongs to the compiler's runtime library, and zig's is
 * empty. */
uint32_t cpu_features(void);
