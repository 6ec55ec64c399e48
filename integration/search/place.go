package search

import "math/bits"

// What lib_place.lua does, and of lib_settle.lua what is about positions in the list.

// Gaps are positions from which a cancel removed a payload: a bit each, the middle one
// is 0.
type gaps uint64

const middle = 32

func (g gaps) has(position int8) bool { return g&(1<<(middle+position)) != 0 }

// below is how many there are below a position.
func (g gaps) below(position int8) int8 {
	return int8(bits.OnesCount64(uint64(g) & (1<<(middle+position) - 1)))
}

func (g gaps) count() int8 { return int8(bits.OnesCount64(uint64(g))) }

// from moves all gaps, so that a position becomes 0.
func (g gaps) from(position int8) gaps {
	if position < 0 {
		return g << -position
	}
	return g >> position
}

// ahead is ahead_of: how many are in front of a position.
func (l *lock) ahead(position int8) int8 {
	return position - l.offset - l.gaps.below(position)
}

// position is position_of: the one that has so many in front of it.
func (l *lock) position(ahead int8) int8 {
	p := l.offset + ahead
	for g := l.gaps; g != 0; g &= g - 1 {
		if int8(bits.TrailingZeros64(uint64(g)))-middle > p {
			break
		}
		p++
	}
	return p
}

// returned is position_returned: a payload was put back to the front.
func (m *model) returned(l *lock) int8 {
	front := l.position(0) - 1
	if l.gaps.has(front) && m.has(gapFilled) {
		l.gaps &^= 1 << (middle + front)
	} else {
		l.offset--
	}
	return front
}

// keepOffset is keep_offset: gaps in front of the front become part of the offset.
func (m *model) keepOffset(s *state) {
	l := &s.redis.lock
	for range closes {
		at := int8(bits.TrailingZeros64(uint64(l.gaps))) - middle
		if l.gaps == 0 || at > l.offset {
			break
		}
		l.gaps &= l.gaps - 1
		l.offset++
	}
}
