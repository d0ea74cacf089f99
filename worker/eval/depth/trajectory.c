#include "worker/eval/depth/trajectory.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/file.h"
#include "worker/eval/depth/ate.h"

enum { MAX_BYTES = 1 << 30 };

static const char tum_head[] = "# poses by detd: time tx ty tz qx qy qz qw\n", kitti_head[] = "+1 +0 +0 +0 +0 +1 +0 +0 +0 +0 +1 +0\n";

/* Replaces the rotation by the nearest exact one. Networks give motions in float, so rotations are slightly off; in a
 * chain the error grows until other programs reject the file. Each Newton step R (3 - R^T R) / 2 squares the error.
 * Source: Higham 1986, Computing the polar decomposition, SIAM J. Sci. Stat. Comput. 7(4), in Schulz's form without a
 * division. */
static void straighten(double p[RESULT_POSE])
{
    double square[9], rows[9];

    for (int step = 0; step < 2; step++) {
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                square[3 * a + b] = p[a] * p[b] + p[4 + a] * p[4 + b] + p[8 + a] * p[8 + b];
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                rows[3 * i + j] =
                    1.5 * p[4 * i + j] - 0.5 * (p[4 * i] * square[j] + p[4 * i + 1] * square[3 + j] + p[4 * i + 2] * square[6 + j]);
        for (int i = 0; i < 3; i++)
            memcpy(&p[4 * i], &rows[3 * i], 3 * sizeof *p);
    }
}

void trajectory_of(const double (*motion)[RESULT_POSE], size_t n, double factor, double (*ret)[RESULT_POSE])
{
    double at[RESULT_POSE] = { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 }, one[RESULT_POSE];

    for (size_t k = 0; k <= n; k++) {
        memcpy(ret[k], at, sizeof at);
        for (int i = 0; i < 3; i++)
            ret[k][4 * i + 3] *= factor;
        if (k < n) {
            memcpy(one, motion[k], sizeof one);
            straighten(one);
            pose_undone(one, one);
            pose_times(at, one, at);
            straighten(at);
        }
    }
}

/* Begins with the largest of the four squares, which is at least a quarter. Source: Shepperd 1978, Quaternion from
 * rotation matrix. */
void trajectory_quaternion(const double pose[RESULT_POSE], double ret[4])
{
    double trace = pose[0] + pose[5] + pose[10], square[4] = { 0 }, sign;
    int most = 3;

    for (int i = 0; i < 3; i++)
        square[i] = 1 + 2 * pose[5 * i] - trace;
    square[3] = 1 + trace;
    for (int i = 0; i < 3; i++)
        if (square[i] > square[most])
            most = i;
    ret[most] = sqrt(square[most]) / 2;
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, l = (i + 2) % 3;
        double skew = pose[4 * l + j] - pose[4 * j + l]; /* 4 w times part i */

        if (most == 3) {
            ret[i] = skew / (4 * ret[3]);
        } else if (most == i) {
            ret[3] = skew / (4 * ret[i]);
            ret[j] = (pose[4 * i + j] + pose[4 * j + i]) / (4 * ret[i]);
            ret[l] = (pose[4 * i + l] + pose[4 * l + i]) / (4 * ret[i]);
        }
    }
    sign = ret[3] < 0 ? -1 : 1;
    for (int i = 0; i < 4; i++)
        ret[i] *= sign;
}

/* Turns -0 into 0, which reads better. */
static double plain(double x)
{
    return x == 0 ? 0 : x;
}

static void write_tum(struct file_out *f, long long number, const double p[RESULT_POSE], struct err *err)
{
    double q[4];

    trajectory_quaternion(p, q);
    file_out_printf(f, err, "%lld", number);
    for (int i = 0; i < 3; i++)
        file_out_printf(f, err, " %.12g", plain(p[4 * i + 3]));
    for (int i = 0; i < 4; i++)
        file_out_printf(f, err, i < 3 ? " %.12g" : " %.12g\n", plain(q[i]));
}

static void write_kitti(struct file_out *f, const double p[RESULT_POSE], struct err *err)
{
    for (int i = 0; i < RESULT_POSE; i++)
        file_out_printf(f, err, i + 1 < RESULT_POSE ? "%.12g " : "%.12g\n", plain(p[i]));
}

int trajectory_write(const char *path, enum trajectory_form form, const double (*pose)[RESULT_POSE], struct trajectory_frames frames,
                     struct err *err)
{
    struct file_out *f;
    int rc = file_out_open_named(path, trajectory_is_own, &f, err);

    if (rc < 0)
        return rc;
    file_out_printf(f, err, "%s", form == TRAJECTORY_TUM ? tum_head : kitti_head);
    for (size_t k = 0; k < frames.n; k++)
        if (form == TRAJECTORY_TUM)
            write_tum(f, frames.first + (long long)k * frames.step, pose[k], err);
        else if (k > 0)
            write_kitti(f, pose[k], err);
    return file_out_commit(f, err);
}

static bool begins(const struct file_map *m, const char *head)
{
    return m->size >= strlen(head) && memcmp(m->data, head, strlen(head)) == 0;
}

bool trajectory_is_own(const char *path)
{
    struct file_map m;
    struct err ignored;
    bool is;

    if (file_map_open(path, MAX_BYTES, &m, &ignored) < 0)
        return false;
    is = begins(&m, tum_head) || begins(&m, kitti_head);
    file_map_close(&m);
    return is;
}
