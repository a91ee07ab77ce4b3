/* The floating-point mode of all that the runtime computes: rounding to the nearest, subnormal numbers kept,
 * no traps. It belongs to a thread, whose host may have set another. */
#pragma once

#include <stdint.h>

typedef struct float_mode {
  uint64_t control; /* MXCSR, FPCR */
  uint16_t x87;     /* its control word, by which libc rounds printed numbers */
} float_mode;

#if defined(__x86_64__)
enum { MXCSR_MODE = 0xFFC0, CONTROL_WANTED = 0x1F80, X87_WANTED = 0x037F };

static inline uint64_t float_mode_read(void) { return __builtin_ia32_stmxcsr(); }

static inline int float_mode_is_wanted(uint64_t control) {
  return !((control ^ CONTROL_WANTED) & MXCSR_MODE);
}

static inline uint16_t float_mode_write(uint64_t control, uint16_t x87) {
  uint16_t before;
  __asm__ volatile("fnstcw %0" : "=m"(before));
  __asm__ volatile("fldcw %0" : : "m"(x87));
  __builtin_ia32_ldmxcsr((uint32_t)control);
  return before;
}
#elif defined(__aarch64__)
enum { CONTROL_WANTED = 0, X87_WANTED = 0 };

static inline uint64_t float_mode_read(void) {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}

static inline int float_mode_is_wanted(uint64_t control) { return !control; }

static inline uint16_t float_mode_write(uint64_t control, uint16_t x87) {
  __asm__ volatile("msr fpcr, %0" : : "r"(control));
  return x87;
}
#else /* it has one mode */
enum { CONTROL_WANTED = 0, X87_WANTED = 0 };
static inline uint64_t float_mode_read(void) { return 0; }
static inline int float_mode_is_wanted(uint64_t control) { return !control; }
static inline uint16_t float_mode_write(uint64_t control, uint16_t x87) { return (void)control, x87; }
#endif

/* Set the runtime's mode; returns the thread's, for float_mode_restore. Costs a read of a register where it
 * is the same: what sets rounding sets it in both units. */
static inline float_mode float_mode_set(void) {
  float_mode before = {float_mode_read(), X87_WANTED};
  if (!float_mode_is_wanted(before.control)) before.x87 = float_mode_write(CONTROL_WANTED, X87_WANTED);
  return before;
}

/* Set the mode that float_mode_set has found, in a thread that has the runtime's. */
static inline void float_mode_restore(float_mode before) {
  if (!float_mode_is_wanted(before.control)) float_mode_write(before.control, before.x87);
}
