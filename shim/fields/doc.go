// Package fields checks decoded JSON objects against tables of supported fields.
// It owns the tables' format, the checks of single values, and the wording and
// the bounds of problems. It leaves the tables themselves to the packages of the
// objects: shim/vmspec for what a node reads, and the packages below controller/
// for manifests.
package fields
