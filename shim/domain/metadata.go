package domain

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// metadataNamespace is the XML namespace of nodevirt's element in a domain's
// metadata. The element marks nodevirt's domains.
const metadataNamespace = "https://nodevirt.io/domain/1"

// origin is the metadata of a domain: the container that it belongs to. Its
// name has no tag, since libvirt returns the element without its namespace.
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

func metadata(desc Description) (*libvirtxml.DomainMetadata, error) {
	text, err := xml.MarshalIndent(origin{
		XMLName:   xml.Name{Space: metadataNamespace, Local: "vm"},
		Container: originContainer{ID: desc.ContainerID, Name: desc.ContainerName},
		Pod:       originPod{Namespace: desc.PodNamespace, Name: desc.PodName},
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
