// Package control measures the controller against a real API server without
// nodes: its memory with nothing to do and with many instances whose pods nobody
// schedules, how many pods it makes a second, and how many requests that takes.
//
// It owns what is measured, and how. The API server is package apiserver's.
package control
