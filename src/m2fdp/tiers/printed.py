"""What D prints: the numbers that the clock's tables stand beside."""

from __future__ import annotations

# D Sec. 4.1: ten clients share CIFAR-10's 50,000 training records.
CLIENTS, RECORDS = 10, 50_000
# CPUs and link rate. D prints 1 CPU for the second of case 2, whose computation in Table 1 is that
# of 0.1 CPUs: 1.8 times case 1's, whose slowest has 0.2.
PROFILES = [[4.0, 100.0], [2.0, 30.0], [1.0, 30.0], [0.2, 30.0], [0.1, 10.0]]
CASES = {1: [[2.0, 30.0], [1.0, 30.0], [0.2, 30.0]], 2: [[4.0, 100.0], [0.1, 10.0]]}
MODELS = ("resnet56", "resnet110")

# Table 1: ResNet-110, all clients in one of six tiers, seconds to 80 % on CIFAR-10.
TABLE_1_MODEL = "resnet110"
TABLE_1_TIERS = (1, 2, 3, 4, 5, 6, 0)  # 0 is FedAvg
TABLE_1_COMPUTATION = {
    1: (4622, 8106, 9982, 10681, 11722, 12250, 13396),
    2: (8384, 14634, 17993, 19027, 21428, 22344, 24428),
}
TABLE_1_COMMUNICATION = {
    1: (5911, 5995, 2187, 2189, 1018, 908, 16),
    2: (17754, 18090, 6720, 6762, 2941, 2653, 43),
}
# Tables 1 and 2 have six tiers.
TABLE_TIERS = 6

# Table 2: ResNet-56, times by tier over tier 1's.
TABLE_2_MODEL = "resnet56"
TABLE_2_CLIENT = (1.00, 1.63, 2.16, 2.68, 3.30, 3.81)
TABLE_2_SERVER = (1.00, 0.82, 0.65, 0.51, 0.33, 0.20)

# Table 3: seconds to 80 % on CIFAR-10, IID, of both models.
TABLE_3 = {
    "dtfl": (2750, 4816),
    "fedavg": (13157, 24471),
    "splitfed": (35877, 67265),
    "fedgkt": (25458, 39676),
}

# Table 4: ResNet-110, seconds to the target by the number of clients; a tenth takes part.
TABLE_4_MODEL = "resnet110"
TABLE_4_SHARE = 0.1
TABLE_4 = {
    20: {"dtfl": 1877, "fedavg": 7950, "splitfed": 21350, "fedgkt": 14595},
    50: {"dtfl": 2547, "fedavg": 10435, "splitfed": 29026, "fedgkt": 17872},
    100: {"dtfl": 3102, "fedavg": 14032, "splitfed": 36449, "fedgkt": 24438},
    200: {"dtfl": 3594, "fedavg": 16060, "splitfed": 43942, "fedgkt": 27632},
}

# Fig. 3: total time over the number of tiers; profiles switch every 20 rounds.
FIGURE_3_MODEL = "resnet110"
FIGURE_3_SWITCH_EVERY = 20
MOST_TIERS = 7
