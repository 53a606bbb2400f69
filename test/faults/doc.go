// Package faults breaks things on a node with running guests, in the middle of CRI calls, and looks
// whether all comes right again: `make test-faults`.
//
// Rounds are drawn from a seed: which component is killed, or how a disk fails, when, in which call.
// The other tests are cases of which each is wanted every time: a reboot, a daemon that is away or
// hangs, many clients at once, calls that are given up. The tests are behind the build tag "faults",
// for they take minutes. What each part does by itself when things fail is its own tests' matter.
package faults
