package metrics

import "github.com/prometheus/client_golang/prometheus"

// series is a metric whose values are read at each scrape.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func newSeries(kind prometheus.ValueType, name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), kind}
}

func gauge(name, help string, labels ...string) series {
	return newSeries(prometheus.GaugeValue, name, help, labels...)
}

func counter(name, help string, labels ...string) series {
	return newSeries(prometheus.CounterValue, name, help, labels...)
}

func (s series) send(to chan<- prometheus.Metric, value float64, labels ...string) {
	m, err := prometheus.NewConstMetric(s.desc, s.kind, value, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(s.desc, err)
	}
	to <- m
}

// node collects the metrics of the node and its VMs from one snapshot.
type node struct {
	recent *recent
	vms    vms

	states, libvirt, containerd    series
	images, fsUsed, fsSize, fsFree series
	snapshot                       series
	expanded, expandedBytes        series
	expanding                      series
}

func newNode(source Source, name *nodeName) *node {
	const of = namespace + "_"
	return &node{
		recent:        &recent{source: source},
		vms:           newVMs(name),
		states:        gauge(of+"vms", "VM containers, by the state of their record.", "state"),
		libvirt:       gauge(of+"libvirt_up", "1 if libvirtd reported the domains in time, else 0."),
		containerd:    gauge(of+"containerd_up", "1 if containerd's CRI answered in time, else 0."),
		images:        gauge(of+"images_in_use", "Images whose disk VM containers hold."),
		fsUsed:        gauge(of+"image_filesystem_used_bytes", "Size of containerd's unpacked images."),
		fsSize:        gauge(of+"image_filesystem_size_bytes", "Size of the file system that holds images, and should hold overlays."),
		fsFree:        gauge(of+"image_filesystem_free_bytes", "Free space of the images' file system for an unprivileged user."),
		expanded:      gauge(of+"expanded_disks", "Disks of images that the shim keeps expanded, for clones."),
		expandedBytes: gauge(of+"expanded_disk_bytes", "Size of the disks that the shim keeps expanded; VMs' clones share it."),
		expanding: gauge(of+"disk_expansion_progress_ratio", "Completed part of the expansion of a disk, 0 to 1.",
			vmLabels("disk")...),
		snapshot: gauge(of+"snapshot_ok", "1 if this scrape has the VMs, 0 if reading them takes too long."),
	}
}

// Describe sends nothing, since the metrics of VMs depend on what guests report.
func (n *node) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (n *node) Collect(to chan<- prometheus.Metric) {
	s, ok := n.recent.get()
	n.snapshot.send(to, number(ok))
	if !ok {
		return
	}
	for state, count := range s.States {
		n.states.send(to, float64(count), state)
	}
	n.libvirt.send(to, number(s.Libvirt))
	n.containerd.send(to, number(s.Containerd))
	n.images.send(to, float64(s.Images))
	if s.Containerd {
		n.fsUsed.send(to, float64(s.ImageFSUsed))
	}
	if s.ImageFSSize > 0 {
		n.fsSize.send(to, float64(s.ImageFSSize))
		n.fsFree.send(to, float64(s.ImageFSFree))
	}
	n.expanded.send(to, float64(s.Expanded))
	n.expandedBytes.send(to, float64(s.ExpandedBytes))
	for _, e := range s.Expanding {
		n.expanding.send(to, e.Done, n.vms.node.get(), e.Namespace, e.Name, e.Disk)
	}
	n.vms.collect(to, s.VMs)
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
