package record

import "slices"

// device is a disk or a network card of a running VM, with a name that no other device of its kind has.
type device interface{ name() string }

func (p PluggedDisk) name() string { return p.Disk.Name }
func (c PluggedCard) name() string { return c.Card.Name }

// find returns the position of a device by its name, -1 if there is none.
func find[D device](all []D, name string) int {
	return slices.IndexFunc(all, func(d D) bool { return d.name() == name })
}

// with returns a copy of the devices with one in place of that of its name.
func with[D device](all []D, one D) []D {
	all = slices.Clone(all)
	if i := find(all, one.name()); i >= 0 {
		all[i] = one
		return all
	}
	return append(all, one)
}

// without returns a copy of the devices without one.
func without[D device](all []D, name string) []D {
	return slices.DeleteFunc(slices.Clone(all), func(d D) bool { return d.name() == name })
}
