package metrics

import "github.com/nodevirt/nodevirt/netsetup"

// cardSeries are the metrics of guests' network cards.
type cardSeries []struct {
	series
	value func(netsetup.Counters) uint64
}

func newCardSeries() cardSeries {
	c := func(name, help string) series {
		return counter("kubevirt_vmi_network_"+name, help, vmLabels("interface", "network")...)
	}
	type counters = netsetup.Counters
	return cardSeries{
		{c("receive_bytes_total", "Bytes that the guest received."), func(c counters) uint64 { return c.RxBytes }},
		{c("receive_packets_total", "Packets that the guest received."), func(c counters) uint64 { return c.RxPackets }},
		{c("receive_errors_total", "Packets to the guest that failed."), func(c counters) uint64 { return c.RxErrors }},
		{c("receive_packets_dropped_total", "Packets to the guest that were dropped."), func(c counters) uint64 { return c.RxDropped }},
		{c("transmit_bytes_total", "Bytes that the guest sent."), func(c counters) uint64 { return c.TxBytes }},
		{c("transmit_packets_total", "Packets that the guest sent."), func(c counters) uint64 { return c.TxPackets }},
		{c("transmit_errors_total", "Packets of the guest that failed."), func(c counters) uint64 { return c.TxErrors }},
		{c("transmit_packets_dropped_total", "Packets of the guest that were dropped."), func(c counters) uint64 { return c.TxDropped }},
	}
}

func (s cardSeries) collect(to sender, cards []Card) {
	for _, card := range cards {
		for _, m := range s {
			to.send(m.series, float64(m.value(card.Counters)), card.Name, card.Name)
		}
	}
}
