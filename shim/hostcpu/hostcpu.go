// Package hostcpu reads the node's processors: their model, and which core and which NUMA node each
// is of. It owns the lists of processors that the kernel and the kubelet write, such as 0-3,7. It leaves their use
// to package domain.
package hostcpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// CPU is one of the node's processors.
type CPU struct {
	ID int
	// Core is the least ID of the processors that share a core.
	Core int
	// Node is the NUMA node.
	Node int
}

// maxCPU bounds the numbers in a list.
const maxCPU = 1 << 13

// Read returns the node's processors that are online, by their IDs. Root is /sys/devices/system.
func Read(root string) ([]CPU, error) {
	online, err := list(filepath.Join(root, "cpu", "online"))
	if err != nil {
		return nil, err
	}
	node := map[int]int{}
	folders, _ := filepath.Glob(filepath.Join(root, "node", "node[0-9]*")) // none without NUMA
	for _, folder := range folders {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "node"))
		if err != nil {
			continue
		}
		ids, err := list(filepath.Join(folder, "cpulist"))
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			node[id] = n
		}
	}
	var all []CPU
	for _, id := range online {
		siblings, err := list(filepath.Join(root, "cpu", "cpu"+strconv.Itoa(id), "topology", "thread_siblings_list"))
		if errors.Is(err, fs.ErrNotExist) {
			siblings, err = []int{id}, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, CPU{ID: id, Core: slices.Min(append(siblings, id)), Node: node[id]})
	}
	return all, nil
}

func list(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the node's processors: %w", err)
	}
	ids, err := Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the node's processors: %s: %w", path, err)
	}
	return ids, nil
}

// Parse returns the numbers of a list such as 0-3,7, sorted.
func Parse(text string) ([]int, error) {
	var ids []int
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := number(first)
		if err != nil {
			return nil, err
		}
		to, err := number(last)
		if err != nil {
			return nil, err
		}
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= maxCPU {
		return 0, fmt.Errorf("%.20q is not the number of a processor", text)
	}
	return n, nil
}

// Format returns numbers as a list, each by itself.
func Format(ids []int) string {
	var all []string
	for _, id := range ids {
		all = append(all, strconv.Itoa(id))
	}
	return strings.Join(all, ",")
}
