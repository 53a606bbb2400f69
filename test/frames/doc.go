// Package frames crafts Ethernet frames, among them those by which a hostile machine would take what
// is not its own, and sends and receives them as they are.
package frames
