// Package console tests a guest's way to its container's log, with real guests, whatever happens to
// the shim and to the log meanwhile, and what crictl logs makes of it.
package console
