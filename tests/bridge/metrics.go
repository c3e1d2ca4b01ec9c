package main

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics is what the bridge says of itself to Prometheus. Nothing of the Go runtime: that costs more than the rest.
type metrics struct {
	registry  *prometheus.Registry
	sessions  *prometheus.GaugeVec
	messages  *prometheus.CounterVec
	lost      *prometheus.CounterVec
	frames    prometheus.Histogram
	frameTime prometheus.Gauge
	draining  prometheus.Gauge
}

func newMetrics(load *load) *metrics {
	started := float64(time.Now().UnixMilli()) / 1000
	byProtocol := []string{"protocol"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bridge_sessions", Help: "Open sessions."}, byProtocol),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_messages_total", Help: "Messages that users sent."}, byProtocol),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_lost_messages_total", Help: "Messages missing in a session's sequence, or repeated."}, byProtocol),
		frames: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "bridge_frame_seconds", Help: "From when a frame was due until its work was done.",
			Buckets: []float64{.005, .01, .025, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5}}),
		frameTime: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_frame_time_seconds", Help: "The same of the latest frame."}),
		draining: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_draining", Help: "1 while no new sessions are taken."}),
	}
	for _, protocol := range protocols {
		m.sessions.WithLabelValues(protocol)
		m.messages.WithLabelValues(protocol)
		m.lost.WithLabelValues(protocol)
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.registry.MustRegister(m.sessions, m.messages, m.lost, m.frames, m.frameTime, m.draining,
		gauge("bridge_demand_cores", "CPU-seconds of work per second that the frames do.", load.demand),
		gauge("bridge_held_memory_bytes", "Memory held on command.",
			func() float64 { return float64(load.held.Load() * mib) }),
		gauge("process_start_time_seconds", "When the process started, in Unix time.", func() float64 { return started }))
	return m
}

func (m *metrics) frame(took time.Duration) {
	m.frames.Observe(took.Seconds())
	m.frameTime.Set(took.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}
