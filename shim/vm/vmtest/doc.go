// Package vmtest provides fakes of the parts that a VM is made of, and the suites
// that a fake and the real part both pass.
//
// A fake behaves: it keeps what it was asked to make, refuses what the real part
// refuses, and reports what is left. Faults come from a [Script]. A suite checks
// what package lifecycle relies on, and no more.
//
// Only tests import this package.
package vmtest
