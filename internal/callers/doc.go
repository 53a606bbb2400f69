// Package callers bounds the connections of an HTTP server, so that clients that connect and ask nothing keep no others
// out.
//
// It owns which connection is closed when there are too many: one that no request occupies, of the address that has the
// most of these, the oldest first. It leaves to the server how long handshakes, headers and replies may take, and how many
// requests it serves.
package callers
