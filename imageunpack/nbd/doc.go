// Package nbd reads disks, and which parts of them have changed, from an NBD server: the client's half
// of the fixed newstyle handshake, of reads and of block statuses.
//
// It leaves the connection, its deadlines and what is done with the disks to its callers. It takes
// nothing that a server says without a bound: a guest that has broken out may be the server.
//
// The protocol is that of
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md.
package nbd
