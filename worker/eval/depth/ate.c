#include "worker/eval/depth/ate.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

void pose_times(const double a[RESULT_POSE], const double b[RESULT_POSE], double ret[RESULT_POSE])
{
    double y[RESULT_POSE];

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++)
            y[4 * i + j] = a[4 * i] * b[j] + a[4 * i + 1] * b[4 + j] + a[4 * i + 2] * b[8 + j] + (j == 3 ? a[4 * i + 3] : 0);
    memcpy(ret, y, sizeof y);
}

void pose_undone(const double a[RESULT_POSE], double ret[RESULT_POSE])
{
    double y[RESULT_POSE];

    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            y[4 * i + j] = a[4 * j + i];
        y[4 * i + 3] = -(a[i] * a[3] + a[4 + i] * a[7] + a[8 + i] * a[11]);
    }
    memcpy(ret, y, sizeof y);
}

/* The positions of all frames but the first, which is the origin. */
static void positions(const double motion[ATE_MOTIONS][RESULT_POSE], double ret[ATE_MOTIONS][3])
{
    double at[RESULT_POSE] = { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 };

    for (int k = 0; k < ATE_MOTIONS; k++) {
        pose_times(at, motion[k], at);
        for (int i = 0; i < 3; i++)
            ret[k][i] = at[4 * i + 3];
    }
}

double ate_of(const double truth[ATE_MOTIONS][RESULT_POSE], const double predicted[ATE_MOTIONS][RESULT_POSE])
{
    double g[ATE_MOTIONS][3], p[ATE_MOTIONS][3], both = 0, own = 0, sum = 0, scale;

    positions(truth, g);
    positions(predicted, p);
    for (int k = 0; k < ATE_MOTIONS; k++)
        for (int i = 0; i < 3; i++) {
            both += g[k][i] * p[k][i];
            own += p[k][i] * p[k][i];
        }
    scale = own > 0 ? both / own : 0; /* for a camera that never moves there is no scale */
    for (int k = 0; k < ATE_MOTIONS; k++)
        for (int i = 0; i < 3; i++)
            sum += (scale * p[k][i] - g[k][i]) * (scale * p[k][i] - g[k][i]);
    return sqrt(sum) / ATE_FRAMES;
}
