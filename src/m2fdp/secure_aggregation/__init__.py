"""Sums that hide their terms: masked vectors, and shares of what unmasks their sum.

The protocol is that of Bonawitz et al. (2017, "Practical Secure Aggregation for Privacy-Preserving
Machine Learning") against honest-but-curious parties. What is claimed: a coalition of the server
and fewer than t members learns from one round the sum over the honest survivors, who took part and
who fell silent when, and what it put in itself; nothing else, as far as X25519, HKDF-SHA256,
ChaCha20 and Poly1305 are what they are believed to be. The claim is a computational one about one
round: sums over different survivors in several rounds are releases of their own. Against a server
that lies about who survived or about keys, real nodes do more (`active`). Not covered are members
that send what the protocol does not say, and what timing tells. **A sum is not differentially
private because it is a sum**: without noise its epsilon is infinite.
"""
