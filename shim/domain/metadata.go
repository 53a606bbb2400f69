package domain

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// metadataNamespace is the XML namespace of nodevirt's element in a domain's
// metadata. The element marks the domains that are nodevirt's own.
const metadataNamespace = "https://nodevirt.io/domain/1"

// origin is what a domain's metadata tells: the container that it is. Its
// name has no tag, since libvirt gives the element back without its namespace.
type origin struct {
	XMLName   xml.Name
	Container originContainer `xml:"container"`
	Pod       originPod       `xml:"pod"`
}

type originContainer struct {
	ID   string `xml:"id,attr"`
	Name string `xml:"name,attr,omitempty"`
}

type originPod struct {
	Namespace string `xml:"namespace,attr,omitempty"`
	Name      string `xml:"name,attr,omitempty"`
}

func metadata(m Machine) (*libvirtxml.DomainMetadata, error) {
	text, err := xml.MarshalIndent(origin{
		XMLName:   xml.Name{Space: metadataNamespace, Local: "vm"},
		Container: originContainer{ID: m.ContainerID, Name: m.ContainerName},
		Pod:       originPod{Namespace: m.PodNamespace, Name: m.PodName},
	}, "    ", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return &libvirtxml.DomainMetadata{XML: "\n" + string(text) + "\n  "}, nil
}

func parseMetadata(text string) (origin, error) {
	var o origin
	if err := xml.Unmarshal([]byte(text), &o); err != nil {
		return origin{}, fmt.Errorf("decode metadata: %w", err)
	}
	return o, nil
}
