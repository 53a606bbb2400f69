// Package faults breaks things on a node with running guests, in the middle of CRI calls, and looks
// whether all comes right again: `make test-faults`.
//
// Rounds are drawn from a seed: which component is killed, or how a disk fails, when, in which call.
// The other tests are cases of which each is wanted every time: a reboot, a daemon that is away or
// hangs, many clients at once, calls that are given up. The tests are behind the build tag "faults",
// for they take minutes. What each part does by itself when things fail is its own tests' matter.
//
// TestDamagedRounds damages what the node keeps: a file of things, in a way of fileDamages, in a phase of a VM's life.
// TestDamagedState is its short form, without chance.
//
// To add a random fault, draw it from the seed in plan_test.go, and inject it in rounds_test.go; a process that can
// be killed is an entry of victims. Run it with ROUNDS=200. To add a fixed fault, write a test such as hang_test.go.
// A random CRI call is an operation in cri_changes_test.go or cri_reads_test.go. census_test.go compares the node
// before and after a test.
package faults
