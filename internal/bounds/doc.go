// Package bounds lists the limits of what users, images, guests and clients can make grow or wait.
//
// It owns the values, and the table from which the list in docs/security.md is generated. It leaves the enforcement to
// the packages that use the values, and the proof to their tests, which the table names.
package bounds
