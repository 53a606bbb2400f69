package domain

import (
	"context"
	"errors"

	"libvirt.org/go/libvirt"
)

// Info identifies one of nodevirt's domains.
type Info struct {
	UUID, Name string
	// The fields of the metadata, see [Description].
	ContainerID, ContainerName string
	PodNamespace, PodName      string
}

// Domains returns nodevirt's domains, running or not. It leaves out other
// domains of this libvirtd.
func (o *Observer) Domains(ctx context.Context) ([]Info, error) {
	return call(ctx, o.conn, "list", "domains", func(c *libvirt.Connect) ([]Info, error) {
		all, err := c.ListAllDomains(0)
		if err != nil {
			return nil, err
		}
		defer func() {
			for i := range all {
				all[i].Free()
			}
		}()
		var own []Info
		for i := range all {
			info, err := infoOf(&all[i])
			switch {
			case err == nil:
				own = append(own, info)
			case !foreign(err):
				return nil, explain(&all[i], err)
			}
		}
		return own, nil
	})
}

// foreign reports whether err means that the domain isn't nodevirt's, or was
// removed since it was listed.
func foreign(err error) bool {
	return errors.Is(err, libvirt.ERR_NO_DOMAIN_METADATA) || errors.Is(err, libvirt.ERR_NO_DOMAIN)
}

func infoOf(dom *libvirt.Domain) (Info, error) {
	text, err := dom.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, metadataNamespace,
		libvirt.DOMAIN_AFFECT_CURRENT)
	if err != nil {
		return Info{}, err
	}
	o, err := parseMetadata(text)
	if err != nil {
		return Info{}, err
	}
	name, err := dom.GetName()
	if err != nil {
		return Info{}, err
	}
	uuid, err := dom.GetUUIDString()
	if err != nil {
		return Info{}, err
	}
	return Info{
		UUID: uuid, Name: name,
		ContainerID: o.Container.ID, ContainerName: o.Container.Name,
		PodNamespace: o.Pod.Namespace, PodName: o.Pod.Name,
	}, nil
}
