#include "proto/progress.h" /* SPDX-License-Identifier: Apache-2.0 */

const char *progress_phase_name(unsigned phase)
{
    static const char *const names[] = {
#define X(ident, name, deadline_s, waited_s) [PHASE_##ident] = name,
        PROGRESS_PHASES(X)
#undef X
    };

    return phase < PHASE_COUNT ? names[phase] : "?";
}

const char *progress_channel_name(enum progress_channel channel)
{
    static const char *const names[] = {
#define X(ident, name) [CHANNEL_##ident] = name,
        PROGRESS_CHANNELS(X)
#undef X
    };

    return names[channel];
}
