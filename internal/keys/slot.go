package keys

import "strings"

// Slots is the number of slots of a Redis Cluster.
const Slots = 16384

// Slot returns the slot of a key or a channel in a Redis Cluster.
func Slot(key string) int { return int(sum(0, hashed(key))) % Slots }

// hashed returns the part of a key that determines its slot: the text between the first opening
// brace and the next closing one, unless that is empty. So all keys of a queue share a slot.
func hashed(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// sum continues a checksum: sofar is the checksum of everything before text.
func sum(sofar uint16, text string) uint16 {
	for i := range len(text) {
		sofar = sofar<<8 ^ crc16[byte(sofar>>8)^text[i]]
	}
	return sofar
}

// Slot returns the slot of all keys and channels of the queue.
func (q Queue) Slot() int { return Slot(q.name) }

// crc16 is the table of the checksum CRC16/XMODEM.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		c := uint16(i) << 8
		for range 8 {
			if c&0x8000 != 0 {
				c = c<<1 ^ 0x1021
			} else {
				c <<= 1
			}
		}
		table[i] = c
	}
	return table
}()
