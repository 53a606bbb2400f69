package bounds

import "time"

// Bounds of the controller's API. The streams' sum leaves most connections to admission, and their buffers, of about
// 150 KiB each, fit into the controller's memory.
const (
	// Object bounds an object in admission, in bytes of JSON. Reviews are how many admission makes at once, and
	// NamespaceReviews those of one namespace.
	Object           = 512 << 10
	Reviews          = 4
	NamespaceReviews = 3
	// LongReview is the size of a request, in bytes, above which its review counts as long. Long ones leave a processor to the
	// others.
	LongReview = 32 << 10
	// Elements bounds the elements of all lists of an object in admission: a decoded element can have a hundred times the
	// size of its JSON.
	Elements = 8192
	// Presets bounds the presets of a namespace, and PresetBytes the JSON of their specs together.
	Presets     = 128
	PresetBytes = 1 << 20
	// KindBytes is what the objects of a kind of a namespace share of the controller's memory, in bytes of JSON: each further
	// one may have this divided by their number. They share ControllerKindBytes for what the controller creates from them, and for
	// updates that add Growth at most. Objects of SmallObject and less are always admitted.
	KindBytes           = 4 << 20
	ControllerKindBytes = 16 << 20
	Growth              = 4 << 10
	SmallObject         = 32 << 10
	// CachedAnnotation bounds the value of an annotation that the controller keeps in memory of a pod or a PVC, in bytes.
	CachedAnnotation = 16 << 10
	// Labels, Finalizers and Owners bound the metadata of an object that the controller keeps in memory, Owner the text of
	// each owner. The policy nodevirt-metadata of the API server has the same numbers.
	Labels     = 64
	Finalizers = 32
	Owners     = 32
	Owner      = 1 << 10
	// Volumes and Containers bound those of a pod with the labels of VMs' pods, by the same policy.
	Volumes    = 256
	Containers = 64
	// Others bounds the objects of a namespace that the controller reads past its cache at once, such as the pods that may use
	// a PVC, and OthersTime the time that this takes.
	Others     = 8192
	OthersTime = 30 * time.Second
	// StatePVCs bounds the PVCs whose labels say that they have the persistent state of one VM.
	StatePVCs = 32
	// Handshakes bounds the connections that are not authenticated yet, AddressHandshakes those of one address, and
	// KnownAddressHandshakes those of one that has authenticated before.
	Handshakes             = 1024
	AddressHandshakes      = 64
	KnownAddressHandshakes = 256
	// Connections bounds the authenticated connections to the controller.
	Connections = 4096
	// Streams bounds the consoles, displays, ports and USB devices that callers are connected to, UserStreams those of
	// one user, and NamespaceStreams those to the VMs of one namespace.
	Streams          = 512
	UserStreams      = 128
	NamespaceStreams = 128
	// RequestTime bounds a request from its first byte to the last of its reply. Streams are none.
	RequestTime = 2 * time.Minute
	// StreamStall is how long a caller of a stream can leave its data unread.
	StreamStall = 10 * time.Minute
	// Screenshot bounds a picture of a display, which the controller passes on in parts, in bytes.
	Screenshot = 64 << 20
	// Report bounds what a node answers to other orders of users, in bytes, Reports how many answers of guests' agents
	// the controller holds at once, and NamespaceReports those of one namespace.
	Report           = 4 << 20
	Reports          = 8
	NamespaceReports = 2
)

// Bounds of exports. A client that has connected and asks nothing loses its connection to another one.
const (
	// ProxyConnections bounds the connections to the export proxy, ProxyRequests the requests that it serves, and
	// NamespaceProxyRequests those for exports of one namespace.
	ProxyConnections       = 512
	ProxyRequests          = 256
	NamespaceProxyRequests = 64
	// ExportConnections bounds the connections to the server of one export, and ExportTransfers its downloads.
	ExportConnections = 64
	ExportTransfers   = 8
)
