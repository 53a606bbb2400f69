// Package stream implements the shim's streaming server. CRI's Exec, Attach and
// PortForward return a URL, which the kubelet and crictl then connect to by SPDY or WebSocket.
//
// It owns the HTTP server on loopback, its tokens, each valid for one connection
// within a minute, and the conversion to readers and writers. It leaves the
// protocols to k8s.io/cri-streaming, which containerd uses too, and the guest's end
// of the streams to package vm.
package stream
