/* UTF-8: validity, and truncated characters. */
#include "base/utf8.h"

/* Bytes of the character at `s`, 0 if it is none. */
static size_t utf8_step(const uint8_t *s, size_t left) {
  static const struct {
    uint8_t first_low, first_high, second_low, second_high, length;
  } FORMS[] = {{0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
               {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
               {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  if (s[0] < 0x80) return 1;
  for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
    if (s[0] < FORMS[i].first_low || s[0] > FORMS[i].first_high) continue;
    if (left < FORMS[i].length || s[1] < FORMS[i].second_low || s[1] > FORMS[i].second_high) return 0;
    for (size_t j = 2; j < FORMS[i].length; j++) {
      if ((s[j] & 0xC0) != 0x80) return 0;
    }
    return FORMS[i].length;
  }
  return 0;
}

int utf8_is_valid(const uint8_t *bytes, size_t n) {
  for (size_t i = 0; i < n;) {
    size_t step = utf8_step(bytes + i, n - i);
    if (!step) return 0;
    i += step;
  }
  return 1;
}
