/* SHA-256, FIPS 180-4 section 6.2; the x86 path follows Intel's "SHA Extensions" white paper (2013). */
#include "base/sha256.h"

#include <string.h>

#include "base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

typedef void compress_blocks(uint32_t state[8], const uint8_t *data, size_t n_blocks);

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t big_endian(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void compress_plain(uint32_t state[8], const uint8_t *data, size_t n_blocks) {
  for (; n_blocks; n_blocks--, data += 64) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++) w[i] = big_endian(data + 4 * i);
    for (int i = 16; i < 64; i++) {
      uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
             (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
      uint32_t big1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
      uint32_t t1 = s[7] + big1 + ((s[4] & s[5]) ^ (~s[4] & s[6])) + K[i] + w[i];
      uint32_t big0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
      uint32_t t2 = big0 + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      memmove(s + 1, s, 7 * sizeof *s);
      s[4] += t1;
      s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
  }
}

#if defined(__x86_64__)
__attribute__((target("sha,sse4.1,ssse3"))) static void compress_sha(uint32_t state[8], const uint8_t *data,
                                                                     size_t n_blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
  __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);
  for (; n_blocks; n_blocks--, data += 64) {
    __m128i abef_before = abef, cdgh_before = cdgh, w[4];
    for (int i = 0; i < 16; i++) { /* four rounds each; w[i & 3] holds words 4 i .. 4 i + 3 */
      __m128i *now = &w[i & 3];
      if (i < 4) {
        *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
      } else {
        __m128i third = w[(i + 2) & 3], last = w[(i + 3) & 3];
        *now = _mm_add_epi32(_mm_sha256msg1_epu32(*now, w[(i + 1) & 3]), _mm_alignr_epi8(last, third, 4));
        *now = _mm_sha256msg2_epu32(*now, last);
      }
      __m128i sum = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)(K + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  low = _mm_shuffle_epi32(abef, 0x1B);
  high = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xF0));
  _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

static compress_blocks *choose(void) { return cpu_features() & CPU_SHA ? compress_sha : compress_plain; }
#else
static compress_blocks *choose(void) { return compress_plain; }
#endif

void sha256_init(sha256 *hash) {
  static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(hash->state, initial, sizeof initial);
  hash->n_bytes = 0;
}

void sha256_update(sha256 *hash, const void *data, size_t size) {
  compress_blocks *compress = choose();
  const uint8_t *bytes = data;
  size_t held = hash->n_bytes % 64;
  hash->n_bytes += size;
  if (held && size) {
    size_t n = size < 64 - held ? size : 64 - held;
    memcpy(hash->block + held, bytes, n);
    bytes += n, size -= n;
    if (held + n < 64) return;
    compress(hash->state, hash->block, 1);
  }
  compress(hash->state, bytes, size / 64);
  if (size % 64) memcpy(hash->block, bytes + size / 64 * 64, size % 64);
}

void sha256_final(sha256 *hash, uint8_t digest[SHA256_BYTES]) {
  uint64_t n_bits = hash->n_bytes * 8;
  uint8_t padding[72] = {0x80};
  size_t n = (hash->n_bytes % 64 < 56 ? 56 : 120) - hash->n_bytes % 64;
  for (int i = 0; i < 8; i++) padding[n + i] = (uint8_t)(n_bits >> (56 - 8 * i));
  sha256_update(hash, padding, n + 8);
  for (int i = 0; i < SHA256_BYTES; i++) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

int sha256_matches(const void *data, size_t size, const uint8_t digest[SHA256_BYTES]) {
  sha256 hash;
  uint8_t found[SHA256_BYTES];
  sha256_init(&hash);
  sha256_update(&hash, data, size);
  sha256_final(&hash, found);
  return memcmp(found, digest, SHA256_BYTES) == 0;
}
