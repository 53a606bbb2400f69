package bounds

import (
	"fmt"
	"strconv"
	"time"
)

// Bound is a row of the table.
type Bound struct {
	// What grows or waits, and who makes it do so.
	What, Who string
	// Limit is the bound, for readers.
	Limit string
	// Test is the test that exceeds the bound: a package's folder, a dot, and the name.
	Test string
}

// Table returns all bounds.
func Table() []Bound { return append(append(ofController(), ofExports()...), ofNode()...) }

func ofController() []Bound {
	return []Bound{
		{"an object in admission", "an author", size(Object) + "; 200 problems found, 50 reported", "controller/admission.TestTooLarge"},
		{"elements of an object's lists", "an author", number(Elements), "controller/admission.TestElementsAreBounded"},
		{"reviews at a time", "authors", fmt.Sprintf("%d, %d of a namespace; the others wait", Reviews, NamespaceReviews), "controller/admission.TestReviewsAreShared"},
		{"long reviews at a time", "authors", fmt.Sprintf("of requests above %s, or many presets: a processor is left", size(LongReview)),
			"controller/admission.TestLongReviewsLeaveAProcessor"},
		{"presets of a namespace", "authors", fmt.Sprintf("%d; %s; %s elements of lists", Presets, size(PresetBytes), number(Elements)), "controller/admission.TestPresetsAreBounded"},
		{"objects in the controller's memory", "authors", fmt.Sprintf("%s, divided by the objects of a kind of a namespace, and %s for the controller's and for updates that add %s; always %s",
			size(KindBytes), size(ControllerKindBytes), size(Growth), size(SmallObject)),
			"controller/admission.TestRoomOfKinds"},
		{"labels, finalizers, owners of these objects", "authors", fmt.Sprintf("%d, %d and %d", Labels, Finalizers, Owners), "test/e2e/admission.TestMetadataIsBounded"},
		{"pods with VMs' labels", "authors", fmt.Sprintf("%d volumes, %d containers", Volumes, Containers), "test/e2e/admission.TestMetadataIsBounded"},
		{"pods, PVCs and quotas in the controller's memory", "authors", size(CachedAnnotation) + " of an annotation; as many volumes and statuses as a VM can have", "controller.TestStrangersInCache"},
		{"objects that a review reads of a namespace", "authors", number(Others) + "; in pages, while the API server waits", "controller/admission.TestOthersAreBounded"},
		{"objects that a reconciler reads past its cache", "authors", fmt.Sprintf("%s and %s; in pages", number(Others), span(OthersTime)), "controller/pages.TestEnds"},
		{"PVCs with the label of a VM's state", "authors", number(StatePVCs), "controller/state.TestLabelledIsBounded"},
		{"handshakes with the controller", "pods", fmt.Sprintf("%s; %d of one address, %d of an API server's; 3 and 5 s; the oldest are closed",
			number(Handshakes), AddressHandshakes, KnownAddressHandshakes), "controller/aggregated.TestHandshakes"},
		{"connections to the controller", "the API server", fmt.Sprintf("%s; idle ones 2 minutes", number(Connections)), "controller/aggregated.TestConnectionsAreBounded"},
		{"a request to the controller and its reply", "users", span(RequestTime), "controller/aggregated.TestSlowRequests"},
		{"consoles, displays, forwarded ports", "users", fmt.Sprintf("%d; %d of a user, %d of a namespace", Streams, UserStreams, NamespaceStreams), "controller/subresources.TestStreamsAreShared"},
		{"data that a stream's user leaves unread", "users", span(StreamStall), "controller/subresources.TestStalledCaller"},
		{"screenshots in the controller", "guests", size(Screenshot) + ", passed on in parts", "controller/subresources.TestScreenshotPassesThrough"},
		{"agents' reports in the controller", "guests", fmt.Sprintf("%s; %d at a time, %d of a namespace; more wait", size(Report), Reports, NamespaceReports), "controller/subresources.TestReportsAreShared"},
		{"the controller's memory", "all of these", "its cgroup's limit; Go collects from 85 %", "test/e2e/admission.TestFlood"},
	}
}

func ofExports() []Bound {
	return []Bound{
		{"the export proxy's connections", "clients", number(ProxyConnections) + "; those without a request are closed for others", "internal/callers.TestSilentCallers"},
		{"the export proxy's requests", "clients", fmt.Sprintf("%d; %d of a namespace", ProxyRequests, NamespaceProxyRequests), "controller/export/proxy.TestBounds"},
		{"an export's connections", "clients", number(ExportConnections) + "; those without a request are closed for others", "internal/callers.TestAllAreServed"},
		{"an export's downloads", "clients", number(ExportTransfers), "controller/export/server.TestTransfers"},
	}
}

func ofNode() []Bound {
	return []Bound{
		{"QEMU's log", "a guest", "1 MiB, in the VM's writable layer", "shim/vm/lifecycle.TestDomainLog"},
		{"the console's log", "a guest", "the kubelet's limit; the unread part 64 MiB", "shim/console.TestLagIsBounded"},
		{"an agent's answers, exec's output", "a guest", "fixed sizes, with a mark where they are cut", "shim/agent.TestARealAgent"},
		{"an overlay, an `emptyDisk`", "a guest", "its virtual size; the kubelet evicts the pod", "imageunpack.TestOverlaysEnd"},
		{"a TPM's files", "a guest", "1 MiB each", "shim/tpm.TestFilesEnd"},
		{"memory", "a guest", "the pod's limit and overhead", "test/e2e.TestOutOfMemory"},
		{"portals of a network disk", "an administrator", "16; 3 s each", "shim/vmspec.TestParseNetworkDisks"},
		{"an image's disk", "an image", "`vm.max_disk_size`", "imageunpack.TestLargestDisk"},
		{"the work of a conversion", "an image", "16 GiB and 100 × the file", "imageunpack/qcow2.TestBounds"},
		{"a conversion's memory and processor", "an image", "the VM's cgroup, in its pod's", "shim/disk.TestConversionsJoin"},
		{"conversions at a time", "authors", "a few on a node; namespaces take turns", "imageunpack/expand.TestTurns"},
		{"a conversion's turn", "authors", span(TurnTime) + "; slower work delays its own namespace alone", "imageunpack/expand.TestSlowTurns"},
		{"a checkpoint's memory and disks", "an image", "16 GiB and 100 × its files; conversions' turns, free space and cgroup", "shim/vm/lifecycle.TestBombLeavesSpace"},
		{"a part of a checkpoint's disk", "an image", "16 GiB and 100 × what is read so far, without zeros", "shim/checkpoint.TestFew"},
		{"pages of a checkpoint's memory", "an image", "each twice on average", "shim/ramstream.TestRewrites"},
		{"shared RAM of checkpoints", "images", "a fourth of the node's memory; half of that for a namespace", "shim/forks.TestNotShared"},
		{"devices' state of checkpoints", "images", fmt.Sprintf("%s each, %s of a namespace, %s of a node", size(Outline), size(NamespaceOutlines), size(Outlines)), "shim/forks.TestOutlines"},
		{"the input of `exec -i`", "clients", fmt.Sprintf("%s and %s each, %s of a namespace, %s of a node", size(Input), span(InputTime), size(NamespaceInputs), size(Inputs)), "shim/vm/guest.TestInputHasABudget"},
		{"streams to pods of VMs", "clients", fmt.Sprintf("%d of a pod, %d of a namespace, %s of a node", PodStreams, NodeNamespaceStreams, number(NodeStreams)), "shim/vm/guest.TestStreamsOfAPod"},
		{"connections to the server of streams", "processes of the node", number(StreamConnections) + "; those without a request are closed for others", "internal/callers.TestSilentCallers"},
		{"controls of a VM, such as `pause`", "clients", fmt.Sprintf("1 at a time, %d with those that wait", Controls), "shim/vm/guest.TestControlsWait"},
		{"calls to libvirtd that users order", "clients", fmt.Sprintf("%d on a node, %d of a namespace; more wait", Orders, NamespaceOrders), "shim/domain.TestOrdersLeaveWorkers"},
		{"calls that libvirtd does not answer", "guests", fmt.Sprintf("%d of a VM, %d on a node; the caller waits up to %s", DomainOpenCalls, OpenCalls, span(CallTime)), "shim/domain.TestUnansweredCallsAreCounted"},
		{"screenshots at a time", "clients", fmt.Sprintf("%d on a node, %d of a namespace; more wait", Screenshots, NamespaceScreenshots), "shim/vm/guest.TestScreenshotsTakeTurns"},
		{"agents' answers above 1 MiB", "guests", fmt.Sprintf("%d on a node, 1 of a namespace; 1 MiB a second", LargeAnswers), "shim/agent.TestLyingAgents"},
		{"ports for guests that move with their pod's address", "authors", fmt.Sprintf("%d of a node; %d wait for a namespace's guests", NodePorts, NamespaceNodePorts), "shim/vm/move.TestPortsAreShared"},
		{"hooks", "authors", "8 sidecars; 30 s to listen, 20 s and 4 MiB an answer", "shim/vm/lifecycle.TestHookHangs"},
		{"errors, events, conditions", "images, authors, guests", "20 problems, 64 characters of a value", "controller/events.TestBounds"},
		{"spans that wait for a collector", "starts", "4,096; more are dropped", "tracing.TestNoCollector"},
		{"records", "authors", "the size of a CRI request", "shim/cri.TestLarge"},
	}
}

// size returns a number of bytes for readers.
func size(n int) string {
	if n%(1<<20) == 0 {
		return number(n>>20) + " MiB"
	}
	return number(n>>10) + " KiB"
}

// number returns a number with separators.
func number(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", number(n/1000), n%1000)
}

// span returns a duration for readers.
func span(d time.Duration) string {
	if d%time.Minute == 0 {
		return strconv.Itoa(int(d/time.Minute)) + " minutes"
	}
	return d.String()
}
