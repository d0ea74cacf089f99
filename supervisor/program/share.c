#include "supervisor/program/share.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

static bool is_unfit(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == '"' || *name == '\\')
            return true;
    return false;
}

static double real(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : NAN;
}

int share_read(const json_t *msg, int rank, struct rows_term terms[ROWS_TERMS], struct rows_share *ret)
{
    const char *name;
    int unfit = 0;
    json_t *v;

    *ret = (struct rows_share){ .rank = rank,
                                .val = strcmp(json_string_value(json_object_get(msg, "split")), "val") == 0,
                                .step = json_integer_value(json_object_get(msg, "step")),
                                .epoch = real(json_object_get(msg, "epoch")),
                                .images = real(json_object_get(msg, "images")),
                                .terms = terms };
    json_object_foreach (json_object_get(msg, "terms"), name, v) {
        if (is_unfit(name) || ret->n == ROWS_TERMS)
            unfit++;
        else
            terms[ret->n++] = (struct rows_term){ name, real(json_array_get(v, 0)), real(json_array_get(v, 1)) };
    }
    return unfit;
}
