/* XXH3-128 of long inputs, by its specification: eight lanes of 64 bits over stripes of 64 bytes,
 * blocks of 16 stripes, and two mixes of the lanes at the end. */
#include "base/xxh3.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { STRIPE = 64, LANES = 8, STRIPES_PER_BLOCK = 16, BLOCK = STRIPE * STRIPES_PER_BLOCK };
enum { SECRET_STEP = 8, SECRET_SCRAMBLE = 128, SECRET_LAST = 121, SECRET_LOW = 11, SECRET_HIGH = 117 };

#define PRIME32_1 UINT64_C(0x9E3779B1)
#define PRIME32_2 UINT64_C(0x85EBCA77)
#define PRIME32_3 UINT64_C(0xC2B2AE3D)
#define PRIME64_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME64_3 UINT64_C(0x165667B19E3779F9)
#define PRIME64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME64_5 UINT64_C(0x27D4EB2F165667C5)
#define PRIME_MIX UINT64_C(0x165667919E3779F9)

static const uint8_t SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

static uint64_t u64_at(const uint8_t *p) {
  uint64_t n;
  memcpy(&n, p, sizeof n);
  return n;
}

#if defined(__SSE2__)
static void add_stripes(uint64_t lanes[LANES], const uint8_t *data, const uint8_t *secret, size_t n) {
  __m128i sums[LANES / 2];
  for (int i = 0; i < LANES / 2; i++) sums[i] = _mm_loadu_si128((const __m128i *)lanes + i);
  for (; n; n--, data += STRIPE, secret += SECRET_STEP) {
    for (int i = 0; i < LANES / 2; i++) {
      __m128i value = _mm_loadu_si128((const __m128i *)data + i);
      __m128i key = _mm_xor_si128(value, _mm_loadu_si128((const __m128i *)secret + i));
      __m128i product = _mm_mul_epu32(key, _mm_shuffle_epi32(key, _MM_SHUFFLE(0, 3, 0, 1)));
      __m128i swapped = _mm_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
      sums[i] = _mm_add_epi64(sums[i], _mm_add_epi64(swapped, product));
    }
  }
  for (int i = 0; i < LANES / 2; i++) _mm_storeu_si128((__m128i *)lanes + i, sums[i]);
}
#else
static void add_stripes(uint64_t lanes[LANES], const uint8_t *data, const uint8_t *secret, size_t n) {
  for (; n; n--, data += STRIPE, secret += SECRET_STEP) {
    for (int i = 0; i < LANES; i++) {
      uint64_t value = u64_at(data + 8 * i), key = value ^ u64_at(secret + 8 * i);
      lanes[i ^ 1] += value;
      lanes[i] += (key & UINT32_MAX) * (key >> 32);
    }
  }
}
#endif

static void scramble(uint64_t lanes[LANES]) {
  for (int i = 0; i < LANES; i++)
    lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ u64_at(SECRET + SECRET_SCRAMBLE + 8 * i)) * PRIME32_1;
}

/* The two halves of the 128-bit product, xored. */
static uint64_t fold_product(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t merge(const uint64_t lanes[LANES], const uint8_t *secret, uint64_t start) {
  uint64_t sum = start;
  for (int i = 0; i < LANES; i += 2)
    sum += fold_product(lanes[i] ^ u64_at(secret + 8 * i), lanes[i + 1] ^ u64_at(secret + 8 * i + 8));
  sum = (sum ^ sum >> 37) * PRIME_MIX;
  return sum ^ sum >> 32;
}

xxh3_hash xxh3_128(const void *data, size_t size) {
  const uint8_t *at = data, *last = at + size - STRIPE;
  uint64_t lanes[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3,
                           PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
  size_t left = size - 1;
  for (; left >= BLOCK; left -= BLOCK, at += BLOCK) {
    add_stripes(lanes, at, SECRET, STRIPES_PER_BLOCK);
    scramble(lanes);
  }
  add_stripes(lanes, at, SECRET, left / STRIPE);
  add_stripes(lanes, last, SECRET + SECRET_LAST, 1);
  return (xxh3_hash){merge(lanes, SECRET + SECRET_LOW, size * PRIME64_1),
                     merge(lanes, SECRET + SECRET_HIGH, ~(size * PRIME64_2))};
}
