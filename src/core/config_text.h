/* Settings' values as text: the helpers of config.c that know nothing of settings. */
#ifndef HETMPI_CONFIG_TEXT_H
#define HETMPI_CONFIG_TEXT_H

#include <stddef.h>

/* Lists of words separated by spaces: number of a word, -1: not among them; the word of a number. */
int cfg_word_index(const char *words, const char *word);
void cfg_word_at(const char *words, int index, char *text, size_t bytes);
/* How far name a (in any case) is from the upper-case name b: edits, or 1 where one is a part of the other. Long names
 * are near nothing. */
int cfg_distance(const char *a, const char *b);
/* What cfg_parse_size and cfg_parse_time read back, in the largest unit that needs no fraction. */
void cfg_write_size(size_t size, char *text, size_t bytes);
void cfg_write_time(double seconds, char *text, size_t bytes);

#endif
