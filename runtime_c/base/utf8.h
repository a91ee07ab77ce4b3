/* UTF-8: what is text and what was cut. */
#ifndef SVM_UTF8_H
#define SVM_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Whether the bytes are whole characters: none overlong, a surrogate, over U+10FFFF or cut. */
int utf8_is_valid(const uint8_t *bytes, size_t n);

#endif
