/* SHA-256 (FIPS 180-4) of a byte string, with the CPU's SHA instructions where it has them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

typedef struct sha256 {
  uint32_t state[8];
  uint64_t n_bytes;
  uint8_t block[64];
} sha256;

void sha256_init(sha256 *hash);
void sha256_update(sha256 *hash, const void *data, size_t size);
void sha256_final(sha256 *hash, uint8_t digest[SHA256_BYTES]);

/* Whether `digest` is the hash of the `size` bytes at `data`. */
int sha256_matches(const void *data, size_t size, const uint8_t digest[SHA256_BYTES]);
