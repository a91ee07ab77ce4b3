/* UTF-8: validity, and truncated characters. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Whether the bytes are whole characters: none overlong, a surrogate, over U+10FFFF or cut. */
int utf8_is_valid(const uint8_t *bytes, size_t n);
