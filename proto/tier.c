#include "proto/tier.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

static const char *const names[TIERS] = { "off", "rerun", "world" };

const char *tier_name(int tier)
{
    return tier < 0 || tier >= TIERS ? "" : names[tier];
}

int tier_parse(const char *name)
{
    for (int tier = 0; name && tier < TIERS; tier++)
        if (strcmp(name, names[tier]) == 0)
            return tier;
    return -1;
}
