#include "proto/near.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <ctype.h>
#include <stddef.h>
#include <string.h>

enum { WORD_MAX = 64 };
unsigned near_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    unsigned row[3][WORD_MAX + 1];

    if (na > WORD_MAX || nb > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= nb; j++)
        row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = up[j - 1] + (a[i - 1] != b[j - 1]);

            if (up[j] + 1 < best)
                best = up[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

unsigned near_bound(const char *word)
{
    return strlen(word) < 8 ? 2 : 3;
}

const char *near_word(const char *word, const char *const *known)
{
    unsigned best = near_bound(word);
    const char *found = NULL;

    for (; *known; known++) {
        unsigned far = near_distance(word, *known);

        if (far < best) {
            best = far;
            found = *known;
        }
    }
    return found;
}

/* Copies the word in small letters, without '_' and '-'. A word that is too long is cut. */
static void plain(const char *word, char ret[WORD_MAX + 2])
{
    size_t n = 0;

    for (; *word && n <= WORD_MAX; word++)
        if (*word != '_' && *word != '-')
            ret[n++] = (char)tolower((unsigned char)*word);
    ret[n] = '\0';
}

bool near_misspelt(const char *word, const char *key)
{
    char a[WORD_MAX + 2] = "", b[WORD_MAX + 2] = "";
    unsigned far;

    if (strcmp(word, key) == 0)
        return false;
    plain(word, a);
    plain(key, b);
    far = near_distance(a, b);
    return far == 0 || (strlen(b) > 3 && far < near_bound(b));
}
