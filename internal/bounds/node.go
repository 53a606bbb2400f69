package bounds

import "time"

// Bounds of calls to libvirtd.
const (
	// CallTime is how long a caller waits for an answer if it has no deadline.
	CallTime = 5 * time.Minute
	// OpenCalls bounds the calls that libvirtd has not answered, DomainOpenCalls those of one domain.
	OpenCalls       = 512
	DomainOpenCalls = 32
)

// TurnTime is after how long a conversion of a disk, or the unpacking of a checkpoint, no longer keeps another from its turn.
const TurnTime = 10 * time.Minute

// Bounds of what users order.
const (
	// Controls is how many controls of a VM run or wait. One runs at a time.
	Controls = 8
	// Orders is how many calls to libvirtd that users order run at once, and NamespaceOrders those of one namespace.
	Orders          = 8
	NamespaceOrders = 4
	// Screenshots is how many pictures the shim makes at once, and NamespaceScreenshots those of one namespace.
	Screenshots          = 2
	NamespaceScreenshots = 1
	// LargeAnswers is how many answers of agents above 1 MiB the shim reads at once. Of a namespace it reads one.
	LargeAnswers = 2
	// Input bounds the input of a command in bytes, InputTime the time to send it, Inputs the bytes of all, and
	// NamespaceInputs those of one namespace.
	Input           = 16 << 20
	InputTime       = 5 * time.Minute
	Inputs          = 256 << 20
	NamespaceInputs = 64 << 20
)

// Bounds of what is kept of a checkpoint's devices, in bytes: of one, of those of a namespace, and of all.
const (
	Outline           = 64 << 20
	NamespaceOutlines = 128 << 20
	Outlines          = 256 << 20
)

// Bounds of the streams of a node: commands, consoles, displays and forwarded ports of its VMs' pods.
const (
	// NodeStreams bounds all, NodeNamespaceStreams those to the pods of one namespace, and PodStreams those to one pod.
	NodeStreams          = 1024
	NodeNamespaceStreams = 256
	PodStreams           = 64
	// StreamConnections bounds the connections to the server of CRI's streams.
	StreamConnections = 2048
)

// Bounds of guests that come to a node which waits for them on the node's address.
const (
	// NodePorts is how many ports a node has for these guests, and NamespaceNodePorts how many of them can wait for guests of one
	// namespace.
	NodePorts          = 16
	NamespaceNodePorts = 8
)
