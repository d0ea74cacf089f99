/* worker/predict/depth.h - what predict writes of a picture's depth. */
#pragma once

struct err;
struct jobspec;
struct result;

/* Numbers of 16 bits to the file `numbers`, and a picture for the eye to `colours` (eval/depth_picture.h), each whole or not at all. A number is depth times
 * what the file's text "Depth-scale" says, a power of two by which the farthest pixel just fits; "Depth-unit" is m where the job knows what the network's unit is (val.depth_factor),
 * else network. ERR_NONFINITE: no depth. */
int predict_write_depth(const struct result *r, const struct jobspec *spec, const char *numbers, const char *colours, struct err *err);
