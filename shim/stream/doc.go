// Package stream is the shim's streaming server: CRI's Exec, Attach and
// PortForward answer with a URL, which the kubelet and crictl then speak SPDY or
// WebSocket with.
//
// It owns the HTTP server on loopback, its tokens, each good for one connection
// within a minute, and the way from the wire to plain readers and writers. The
// protocols are k8s.io/cri-streaming's, which containerd serves too. What is at
// the other end of the streams, in a machine, is package vm's.
package stream
