# SPDX-License-Identifier: Apache-2.0 # mk/help.mk - make help
clean:
	rm -rf build build-*

define HELP
To use detd:
  make             builds the programs in build/, and the CUDA device where nvcc is installed
  make demo        installs packages, builds, and trains a small detector with two ranks under a private detd
  make install     installs to PREFIX=$(PREFIX) (DESTDIR= is put before it); make uninstall removes it
  make bundle      build/detd-bundle-VERSION-MACHINE.tar.gz: runs from any folder of a machine with glibc 2.36 or newer

To change detd:
  make check       installs packages, builds, runs every test        SAN=address,undefined or SAN=thread: with sanitizers
  make check-long  searches further: more rounds, seeds and shapes (20 minutes)    LONG=1: what takes longest too
  make check-programs    programs with PyTorch and Lightning as jobs; installs both first
  make lint        clang-format, cppcheck, clang-tidy, gcc's warnings, shellcheck
  make layers      which file may include which; circles of calls
  make bench       speed, as ratios to a peer or to a limit
  make lines       lines of each folder: product, tests, data        COMMIT=c: of that commit
  WERROR=1         makes compiler warnings errors

To search for faults:
  make fuzz        libFuzzer (needs clang) on each parser            SECONDS=60 TARGET=spool
  make mutants     draws one-line faults and counts how many the tests notice     N=60 SEED=n ONLY=worker/train
  make prove       runs jobs under everything that must not change a bit          N=59 ONLY=cells or models
  make torture     kills, full disks and wrong clocks while jobs run              SECONDS=600 SEED=n
  make check-fresh check and demo in a bare Debian 12 root (needs root, debootstrap)     SUITE=trixie: Debian 13

With a GPU:
  make check-gpu   tests that need a GPU          make bench-gpu  its speed beside PyTorch
  make pack-gpu    an archive for a machine with a GPU where nothing can be built   BCCD=FOLDER, NCCL=FOLDER: adds these
endef
help:
	@: $(info $(HELP))
.PHONY: all clean help
